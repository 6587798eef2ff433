"""Commands around the service: graphs as files and recorded cases."""
