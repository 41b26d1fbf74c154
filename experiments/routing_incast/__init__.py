"""Does an incast's congestion spread further with adaptive routing, and whom does it slow?"""
