"""What does a year of link flash cuts cost training and storage, by repair policy?"""
