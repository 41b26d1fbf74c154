"""How long would the network alone take for GraySort's data, and what binds it?"""
