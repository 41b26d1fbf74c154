"""What does the failure of a storage node cost clients, until nobody counts on it, and until it is back?"""
