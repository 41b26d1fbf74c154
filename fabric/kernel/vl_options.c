// SPDX-License-Identifier: GPL-2.0
#include <linux/bits.h>
#include <net/netlink.h>

#include "vl_options.h"

static const struct nla_policy vl_policy[VL_OPTION_COUNT] = {
	[VL_OPTION_PORT] = NLA_POLICY_EXACT_LEN(sizeof(struct vl_port_options)),
	[VL_OPTION_DSCP] = NLA_POLICY_EXACT_LEN(VL_DSCPS),
	[VL_OPTION_HIGH] = { .type = NLA_BINARY, .len = VL_MOST_ENTRIES * sizeof(struct vl_entry) },
	[VL_OPTION_LOW] = { .type = NLA_BINARY, .len = VL_MOST_ENTRIES * sizeof(struct vl_entry) },
	[VL_OPTION_LANES] = NLA_POLICY_EXACT_LEN(VL_LANES * sizeof(struct vl_lane_options)),
	[VL_OPTION_DRAWS] = { .type = NLA_BINARY, .len = VL_MOST_DRAWS * sizeof(struct vl_draw_options) },
};

static int vl_parse_table(struct vl_table *table, const struct nlattr *attribute, struct netlink_ext_ack *extack)
{
	int i;

	if (nla_len(attribute) % sizeof(struct vl_entry)) {
		NL_SET_ERR_MSG(extack, "vl: an arbitration table is a row of pairs of lane and weight");
		return -EINVAL;
	}
	table->count = nla_len(attribute) / sizeof(struct vl_entry);
	memcpy(table->entries, nla_data(attribute), nla_len(attribute));
	for (i = 0; i < table->count; i++) {
		if (table->entries[i].lane >= VL_MANAGEMENT_LANE || !table->entries[i].weight) {
			NL_SET_ERR_MSG(extack, "vl: an arbitration table has lanes 0 to 14 and weights of 1 to 255");
			return -EINVAL;
		}
		table->lanes |= BIT(table->entries[i].lane);
	}
	return 0;
}

static int vl_parse_port(struct vl_config *config, const struct nlattr *attribute, struct netlink_ext_ack *extack)
{
	nla_memcpy(&config->port, attribute, sizeof(config->port));	/* It may lie at an odd multiple of 4. */
	if (config->port.version != VL_VERSION) {
		NL_SET_ERR_MSG(extack, "vl: this module and the program are of different versions");
		return -EINVAL;
	}
	if (config->port.mode >= VL_MODES || !config->port.rate_bps || config->port.delay_ns > NSEC_PER_SEC ||
	    config->port.return_ns > NSEC_PER_SEC || config->port.jitter_ns > NSEC_PER_SEC ||
	    config->port.watchdog_ns > NSEC_PER_SEC || config->port.lifetime_ns > NSEC_PER_SEC) {
		NL_SET_ERR_MSG(extack, "vl: unknown mode, no rate, or a delay, jitter, watchdog or lifetime above 1 s");
		return -EINVAL;
	}
	if (config->port.trim_dscp >= VL_DSCPS) {
		NL_SET_ERR_MSG(extack, "vl: the DSCP of what is trimmed is above 63");
		return -EINVAL;
	}
	config->control_lane = config->port.control_lane;
	return 0;
}

/* Finds the lanes in use, and makes sure that each of them will be served. */
static int vl_parse_lanes(struct vl_config *config, const struct vl_arbiter *arbiter, struct netlink_ext_ack *extack)
{
	u32 served = arbiter->high.lanes | arbiter->low.lanes | BIT(VL_MANAGEMENT_LANE);
	int i;

	for (i = 0; i < VL_DSCPS; i++) {
		if (config->lane_of_dscp[i] >= VL_LANES)
			goto not_served;
		config->lanes |= BIT(config->lane_of_dscp[i]);
	}
	if (config->control_lane != VL_NO_LANE) {
		if (config->control_lane >= VL_LANES)
			goto not_served;
		config->lanes |= BIT(config->control_lane);
	}
	if (!(config->lanes & ~served))
		return 0;
not_served:
	NL_SET_ERR_MSG(extack, "vl: a DSCP is mapped to a lane that has no entry in a table of arbitration");
	return -EINVAL;
}

static int vl_verify_marking(const struct vl_lane_options *lanes, struct netlink_ext_ack *extack)
{
	int lane;

	for (lane = 0; lane < VL_LANES; lane++)
		if (lanes[lane].mark_max_bytes < lanes[lane].mark_min_bytes) {
			NL_SET_ERR_MSG(extack, "vl: a lane's marking ends below where it begins");
			return -EINVAL;
		}
	return 0;
}

int vl_parse(struct nlattr *options, struct vl_change *change, struct netlink_ext_ack *extack)
{
	struct nlattr *attributes[VL_OPTION_COUNT];
	struct vl_arbiter *arbiter = &change->arbiter;
	struct vl_config *config = &change->config;
	int error, i;

	if (!options)
		return -EINVAL;
	error = nla_parse_nested_deprecated(attributes, VL_OPTION_COUNT - 1, options, vl_policy, extack);
	if (error)
		return error;
	for (i = VL_OPTION_UNSPEC + 1; i < VL_OPTION_COUNT; i++)
		if (!attributes[i] && i != VL_OPTION_DRAWS) {
			NL_SET_ERR_MSG(extack, "vl: an option is missing; all but draws must be given");
			return -EINVAL;
		}
	memcpy(config->lane_of_dscp, nla_data(attributes[VL_OPTION_DSCP]), VL_DSCPS);
	memcpy(change->lanes, nla_data(attributes[VL_OPTION_LANES]), sizeof(change->lanes));
	error = vl_parse_port(config, attributes[VL_OPTION_PORT], extack) ?:
		vl_parse_table(&arbiter->high, attributes[VL_OPTION_HIGH], extack) ?:
		vl_parse_table(&arbiter->low, attributes[VL_OPTION_LOW], extack) ?:
		vl_parse_lanes(config, arbiter, extack) ?:
		vl_verify_marking(change->lanes, extack) ?:
		vl_draws_parse(attributes[VL_OPTION_DRAWS], &change->draws, extack);
	arbiter->high_limit = config->port.high_limit;
	arbiter->high_left = vl_high_allowance(arbiter);
	return error;
}
