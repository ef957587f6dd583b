"""How written English is read aloud: the rules of the normaliser, one kind of text a module."""
