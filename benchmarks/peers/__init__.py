"""SieveMQ in the harness that measures other brokers."""
