"""Is there a set of DCQCN's parameters that suits HFReduce and storage at once, and do lanes without it do better?"""
