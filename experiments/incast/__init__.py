"""What does an incast of storage nodes on one client cost, and what does limiting its senders do about it?"""
