-- The queue's role and its database. The superuser has no password: it is reached by the socket alone.
\getenv password QUEUE_PASSWORD
CREATE ROLE fluxqueue LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION PASSWORD :'password';
CREATE DATABASE fluxqueue OWNER fluxqueue;
REVOKE ALL ON DATABASE fluxqueue FROM PUBLIC;
