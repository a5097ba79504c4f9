"""Making a release of SieveMQ; ``python -m release.run`` is the command, ``make release`` runs it."""
