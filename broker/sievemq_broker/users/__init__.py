"""Accounts: names, hashed passwords and rights, and the file that keeps them.

- account: one user, and all of them by name
- file: the users file, read and written as a whole
- passwords: argon2id hashes
"""
