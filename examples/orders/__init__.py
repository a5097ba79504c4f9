"""A shop that takes orders, has them paid and shipped, and tells who wants to know what things cost."""
