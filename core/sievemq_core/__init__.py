"""What both ends of SieveMQ agree on: message values, the wire format, the selector language. No I/O, no clock."""
