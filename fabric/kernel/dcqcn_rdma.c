// SPDX-License-Identifier: GPL-2.0
/*
 * DCQCN for queue pairs of soft RoCE: its reaction point (dcqcn.h) says how fast each sends. The guest's rxe paces frames,
 * and its receivers send CNPs (rdma_rates.c.inc). As those are packets of their own, at most one in `cnp_ns`, each that comes
 * cuts the rate.
 */
#include <linux/module.h>
#include <rdma/ib_hdrs.h>

#include "dcqcn.h"
#include "dcqcn_parameters.h"

static unsigned int classes;
static ulong flows, cnps;

module_param(classes, uint, 0444);
MODULE_PARM_DESC(classes, "traffic classes whose queue pairs have it, a bit each by their upper three bits");
module_param(flows, ulong, 0444);
MODULE_PARM_DESC(flows, "queue pairs that have used it");
module_param(cnps, ulong, 0444);
MODULE_PARM_DESC(cnps, "congestion notifications that cut a rate");

static void dcqcn_rdma_start(void *flow)
{
	BUILD_BUG_ON(sizeof(struct dcqcn) > RXE_RATE_CONTROL_BYTES);
	dcqcn_start(flow, &parameters);
	flows++;
}

static u64 dcqcn_rdma_rate_bps(void *flow, u64 now_ns, u64 sent_bytes)
{
	struct dcqcn *state = flow;

	dcqcn_advance(state, &parameters, now_ns, sent_bytes);
	return state->rate_bps;
}

static void dcqcn_rdma_notified(void *flow, u64 now_ns)
{
	cnps += dcqcn_hear(flow, &parameters, now_ns);
}

static struct rxe_rate_control dcqcn_rdma = {
	.start = dcqcn_rdma_start,
	.rate_bps = dcqcn_rdma_rate_bps,
	.notified = dcqcn_rdma_notified,
};

static int __init dcqcn_rdma_init(void)
{
	const char *fault = dcqcn_fault(&parameters);

	if (fault) {
		pr_err("dcqcn: %s\n", fault);
		return -EINVAL;
	}
	dcqcn_rdma.classes = classes;
	dcqcn_rdma.cnp_ns = parameters.cnp_ns;
	parameters.cnp_ns = 0;
	rxe_control_rates(&dcqcn_rdma);
	return 0;
}

static void __exit dcqcn_rdma_exit(void)
{
	rxe_control_rates(NULL);
}

module_init(dcqcn_rdma_init);
module_exit(dcqcn_rdma_exit);
MODULE_DESCRIPTION("DCQCN for soft RoCE: rates of queue pairs by CNPs");
MODULE_LICENSE("GPL");
