/* SPDX-License-Identifier: GPL-2.0 */
/* The parameters of DCQCN as a module is loaded with them: by the same names for TCP and for RDMA. */
#ifndef DCQCN_PARAMETERS_H
#define DCQCN_PARAMETERS_H

#include <linux/moduleparam.h>

#include "dcqcn.h"

static struct dcqcn_parameters parameters;

#define DCQCN_PARAMETER(name, type, says)                    \
	module_param_named(name, parameters.name, type, 0444); \
	MODULE_PARM_DESC(name, says)

DCQCN_PARAMETER(line_rate_bps, ullong, "rate of the hosts' links");
DCQCN_PARAMETER(least_rate_bps, ullong, "no cut goes below it");
DCQCN_PARAMETER(additive_step_bps, ullong, "R_AI");
DCQCN_PARAMETER(hyper_step_bps, ullong, "R_HAI; 0: no hyper increase");
DCQCN_PARAMETER(stage_bytes, ullong, "B, the byte counter; 0: none");
DCQCN_PARAMETER(stage_ns, ullong, "T, the timer of rate increase");
DCQCN_PARAMETER(alpha_ns, ullong, "period after which alpha falls");
DCQCN_PARAMETER(cnp_ns, ullong, "N: at most one CNP in so long");
DCQCN_PARAMETER(gain, uint, "g, in 2^-16");
DCQCN_PARAMETER(first_alpha, uint, "alpha before the first CNP, in 2^-24");
DCQCN_PARAMETER(fast_stages, uint, "F, stages of fast recovery");
DCQCN_PARAMETER(lowers_target, uint, "1: every cut lowers the target rate");

#endif
