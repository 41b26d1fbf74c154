"""What does each kind of event cost a training job, and what do a year's events cost whole machines?"""
