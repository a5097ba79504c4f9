"""Values of a message: addresses, typed properties and their conversions, the envelope."""
