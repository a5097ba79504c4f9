"""Code that both ends of SieveMQ share: message values, the wire format, the selector language. No I/O, no clock."""
