// SPDX-License-Identifier: GPL-2.0
#include "dcqcn.h"
#include "dcqcn_repeat.h"

static __u64 dcqcn_least(__u64 a, __u64 b)
{
	return a < b ? a : b;
}

static __u64 dcqcn_most(__u64 a, __u64 b)
{
	return a > b ? a : b;
}

const char *dcqcn_fault(const struct dcqcn_parameters *parameters)
{
	if (!parameters->line_rate_bps || parameters->line_rate_bps >= DCQCN_MOST_RATE_BPS)
		return "line_rate_bps must be above 0 and below 2^40";
	if (!parameters->least_rate_bps || parameters->least_rate_bps > parameters->line_rate_bps)
		return "least_rate_bps must be above 0 and at most line_rate_bps";
	if (!parameters->additive_step_bps || parameters->additive_step_bps > parameters->line_rate_bps)
		return "additive_step_bps must be above 0 and at most line_rate_bps";
	if (parameters->line_rate_bps / parameters->additive_step_bps > DCQCN_MOST_STEPS)
		return "additive_step_bps must be at least line_rate_bps / 2^22";
	if (parameters->hyper_step_bps > parameters->line_rate_bps)
		return "hyper_step_bps must be at most line_rate_bps";
	if (!parameters->stage_ns || !parameters->alpha_ns)
		return "stage_ns and alpha_ns must be above 0";
	if (!parameters->gain || parameters->gain > DCQCN_GAIN_ONE)
		return "gain must be above 0 and at most 2^16";
	if (!parameters->first_alpha || parameters->first_alpha > DCQCN_ALPHA_ONE)
		return "first_alpha must be above 0 and at most 2^24";
	return (void *)0;
}

void dcqcn_start(struct dcqcn *flow, const struct dcqcn_parameters *parameters)
{
	*flow = (struct dcqcn){
		.rate_bps = parameters->line_rate_bps,
		.target_bps = parameters->line_rate_bps,
		.alpha = parameters->first_alpha,
	};
}

/* --- Between cuts --- */

/* How many periods are over, with the one that is due at `due`; 0: none. */
static __u64 dcqcn_periods(__u64 due_ns, __u64 period_ns, __u64 now_ns)
{
	return now_ns < due_ns ? 0 : (now_ns - due_ns) / period_ns + 1;
}

static long dcqcn_decay_once(__u32 place DCQCN_UNUSED, void *context)
{
	struct dcqcn_repeated *repeated = context;
	__u64 kept = DCQCN_GAIN_ONE - repeated->parameters->gain;

	if (!repeated->flow->alpha)
		return 1;
	repeated->flow->alpha = (repeated->flow->alpha * kept) >> DCQCN_GAIN_BITS;
	return 0;
}

static void dcqcn_decay(struct dcqcn *flow, const struct dcqcn_parameters *parameters, __u64 now_ns)
{
	struct dcqcn_repeated repeated = { .flow = flow, .parameters = parameters };
	__u64 periods = dcqcn_periods(flow->alpha_due_ns, parameters->alpha_ns, now_ns);

	flow->alpha_due_ns += periods * parameters->alpha_ns;
	dcqcn_repeat(periods, dcqcn_decay_once, &repeated);
}

/* By how much the target rises in a stage that follows those counted. */
static __u64 dcqcn_step(const struct dcqcn *flow, const struct dcqcn_parameters *parameters)
{
	__u32 first = flow->time_stages, second = parameters->stage_bytes ? flow->byte_stages : flow->time_stages;
	__u32 most = dcqcn_most(first, second), least = dcqcn_least(first, second);

	if (most < parameters->fast_stages)
		return 0;
	if (!parameters->hyper_step_bps)
		return parameters->additive_step_bps;
	if (!parameters->stage_bytes)
		return most == parameters->fast_stages ? parameters->additive_step_bps : parameters->hyper_step_bps;
	if (least < parameters->fast_stages)
		return parameters->additive_step_bps;
	return (least - parameters->fast_stages + 1) * parameters->hyper_step_bps;
}

static void dcqcn_raise(struct dcqcn *flow, const struct dcqcn_parameters *parameters)
{
	__u64 target_bps = flow->target_bps + dcqcn_step(flow, parameters);

	flow->target_bps = dcqcn_least(target_bps, parameters->line_rate_bps);
	flow->rate_bps = (flow->rate_bps + flow->target_bps + 1) / 2;	/* Rounded up, or it would never get there. */
}

static long dcqcn_stage_once(__u32 place DCQCN_UNUSED, void *context)
{
	struct dcqcn_repeated *repeated = context;

	if (repeated->flow->rate_bps >= repeated->parameters->line_rate_bps)
		return 1;
	dcqcn_raise(repeated->flow, repeated->parameters);
	*repeated->count = dcqcn_least(*repeated->count + 1, DCQCN_MOST_STAGES);
	repeated->done++;
	return 0;
}

/* Does so many stages, and adds them to a count. At the line's rate there is nothing left to raise. */
static void dcqcn_pass(struct dcqcn *flow, const struct dcqcn_parameters *parameters, __u64 stages, __u32 *count)
{
	struct dcqcn_repeated repeated = { .flow = flow, .parameters = parameters, .count = count };

	dcqcn_repeat(stages, dcqcn_stage_once, &repeated);
	*count = dcqcn_least(*count + (stages - repeated.done), DCQCN_MOST_STAGES);
}

static void dcqcn_count_bytes(struct dcqcn *flow, const struct dcqcn_parameters *parameters, __u64 sent_bytes)
{
	__u64 bytes = flow->bytes + sent_bytes;

	dcqcn_pass(flow, parameters, bytes / parameters->stage_bytes, &flow->byte_stages);
	flow->bytes = bytes % parameters->stage_bytes;
}

void dcqcn_advance(struct dcqcn *flow, const struct dcqcn_parameters *parameters, __u64 now_ns, __u64 sent_bytes)
{
	__u64 stages;

	if (!flow->limited)
		return;
	dcqcn_decay(flow, parameters, now_ns);
	stages = dcqcn_periods(flow->stage_due_ns, parameters->stage_ns, now_ns);
	flow->stage_due_ns += stages * parameters->stage_ns;
	dcqcn_pass(flow, parameters, stages, &flow->time_stages);
	if (parameters->stage_bytes)
		dcqcn_count_bytes(flow, parameters, sent_bytes);
}

/* --- Cuts --- */

static void dcqcn_cut(struct dcqcn *flow, const struct dcqcn_parameters *parameters)
{
	__u64 cut_bps = (flow->rate_bps * flow->alpha) >> (DCQCN_ALPHA_BITS + 1);

	if (parameters->lowers_target || !flow->limited || flow->time_stages || flow->byte_stages)
		flow->target_bps = flow->rate_bps;
	flow->rate_bps = dcqcn_most(flow->rate_bps - cut_bps, parameters->least_rate_bps);
}

/* The paper cuts by the alpha that was before. */
static void dcqcn_lift_alpha(struct dcqcn *flow, const struct dcqcn_parameters *parameters)
{
	__u64 kept = flow->alpha * (__u64)(DCQCN_GAIN_ONE - parameters->gain);

	flow->alpha = (kept + ((__u64)parameters->gain << DCQCN_ALPHA_BITS)) >> DCQCN_GAIN_BITS;
}

__u32 dcqcn_hear(struct dcqcn *flow, const struct dcqcn_parameters *parameters, __u64 now_ns)
{
	if (flow->limited && now_ns - flow->cnp_at_ns < parameters->cnp_ns)
		return 0;
	dcqcn_cut(flow, parameters);
	dcqcn_lift_alpha(flow, parameters);
	flow->limited = 1;
	flow->cnp_at_ns = now_ns;
	flow->alpha_due_ns = now_ns + parameters->alpha_ns;
	flow->stage_due_ns = now_ns + parameters->stage_ns;
	flow->time_stages = 0;
	flow->byte_stages = 0;
	flow->bytes = 0;
	return 1;
}
