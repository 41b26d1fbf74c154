"""Collectives: allreduce by HFReduce's trees and by NCCL's rings and trees, chunk by chunk."""
