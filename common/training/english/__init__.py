"""Makes the tables and networks of the English frontend."""
