"""Static routes: by destination, as InfiniBand's d-mod-k. After a failure, what has lost its port takes the least
loaded of those left."""

from controllers.planning.policies.policy import Policy

STATIC = Policy("static", "by destination")
