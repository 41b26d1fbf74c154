"""From a model and a layout to a graph of work: what each rank of a training job computes and communicates in a step.

::

    layout            how many ranks of which kind there are, and the groups that they form
    options           keys of schedules, strategies, experts and computing
    costs             computing time or FLOPs of a part of a layer
    stages            which layers a rank has, and the tensors of its own
    buckets           gradients in DDP's buckets
    orders            the order of forward and backward passes: 1F1B, interleaved, ZB1P, DualPipe
    routing           which experts tokens take, and what goes where for that
    step              a rank's step: passes, and what is communicated between them
    parallel_parts    what tensor, context and expert parallelism communicate around a part
    gradients         DDP and ZeRO 1 and 2: gradients as buckets become ready
    sharded           FSDP and ZeRO 3: parameters gathered before they are used
    parameter_server  servers that add gradients up: synchronous, asynchronous, bounded delay
    expert_step       DeepSeek's step of forward and backward chunks side by side
    steady            a step of many micro-batches by a part of them
    config            the keys of a training job, and its graph
"""
