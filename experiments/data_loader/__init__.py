"""How long does computing wait for the reads of a data loader, by how far it asks ahead?"""
