"""What operators ask a replica over HTTPS: metrics, status and the doctor;
who may is decided by the API server.
"""
