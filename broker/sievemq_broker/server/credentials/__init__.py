"""Signing in: passwords are verified off the loop, failures are throttled, the users file is watched."""
