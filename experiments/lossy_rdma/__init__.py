"""What do losses cost RDMA, by how queue pairs recover from them? Its config, its cases, its theory."""
