// SPDX-License-Identifier: GPL-2.0
/* Plays histories of flows by the reaction point as it is in BPF programs: one event after the other, in one run. */
#include "kernel.h"

#include "../../../fabric/kernel/dcqcn.h"

#pragma GCC visibility push(hidden)
#include "../../../fabric/kernel/dcqcn.c"
#pragma GCC visibility pop

#define MOST_EVENTS 131072

char LICENSE[] SEC("license") = "GPL";

/* What happens to a flow, and how it is then. `starts`: a new flow begins, with other parameters. */
struct event {
	struct dcqcn_parameters parameters;
	__u64 now_ns;
	__u64 sent_bytes;
	__u32 starts;
	__u32 is_marked;
	__u64 heard;
	struct dcqcn flow;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, MOST_EVENTS);
	__type(key, __u32);
	__type(value, struct event);
} events SEC(".maps");

static long happen(__u32 place, struct dcqcn *kept)
{
	struct event *event = bpf_map_lookup_elem(&events, &place);
	struct dcqcn flow = *kept;

	if (!event || !event->parameters.line_rate_bps)
		return 1;
	if (event->starts)
		dcqcn_start(&flow, &event->parameters);
	dcqcn_advance(&flow, &event->parameters, event->now_ns, event->sent_bytes);
	if (event->is_marked)
		event->heard = dcqcn_hear(&flow, &event->parameters, event->now_ns);
	event->flow = *kept = flow;
	return 0;
}

SEC("syscall")
int play(void *context)
{
	struct dcqcn flow = {};

	bpf_loop(MOST_EVENTS, happen, &flow, 0);
	return 0;
}
