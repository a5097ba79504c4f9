"""A shop that takes orders, has them paid and shipped, and answers requests for prices."""
