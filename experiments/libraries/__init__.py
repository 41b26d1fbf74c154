"""How fast are the libraries that users deploy on this fabric, beside theory and our own collectives?"""
