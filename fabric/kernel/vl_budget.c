// SPDX-License-Identifier: GPL-2.0
#include <linux/hrtimer.h>
#include <linux/list.h>
#include <linux/math64.h>
#include <linux/mutex.h>
#include <linux/proc_fs.h>
#include <linux/sched/signal.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/timekeeping.h>
#include <linux/uaccess.h>
#include <net/netlink.h>

#include "vl_budget.h"

struct vl_budget {
	struct list_head in_all;
	u64 id;
	unsigned int users;		/* under vl_budgets_lock */
	spinlock_t lock;		/* of what follows; innermost */
	u64 rate;			/* in bytes a second */
	u64 free_ns;			/* when it has given all that was asked for, */
	u64 rest;			/* and the fraction of a ns to add to it, in 1 / (rate * VL_WEIGHT_ONE) ns */
	u64 drawn, waited_ns;
};

static LIST_HEAD(vl_budgets);
static DEFINE_MUTEX(vl_budgets_lock);

/* --- Drawing --- */

/* Takes bytes times a weight; returns when they are begun to be given, and in `end_ns` when that has ended. */
static u64 vl_budget_take(struct vl_budget *budget, u64 bytes, u32 weight, u64 at_ns, u64 *end_ns)
{
	unsigned long flags;
	u64 start_ns;

	spin_lock_irqsave(&budget->lock, flags);
	if (at_ns > budget->free_ns)
		budget->rest = 0;
	start_ns = max(at_ns, budget->free_ns);
	budget->free_ns = start_ns + div64_u64_rem(bytes * weight * NSEC_PER_SEC + budget->rest,
						   budget->rate * VL_WEIGHT_ONE, &budget->rest);
	budget->drawn += bytes * weight;
	budget->waited_ns += start_ns - at_ns;
	*end_ns = budget->free_ns;
	spin_unlock_irqrestore(&budget->lock, flags);
	return start_ns;
}

u64 vl_draw(struct vl_draws *draws, u32 input_index, u32 bytes, u64 at_ns)
{
	u64 start_ns = at_ns, end_ns;
	int i;

	for (i = 0; i < draws->count; i++) {
		struct vl_drawn *drawn = &draws->of[i];

		if (!drawn->input_index || drawn->input_index == input_index)
			start_ns = max(start_ns, vl_budget_take(drawn->budget, bytes, drawn->weight, at_ns, &end_ns));
	}
	return start_ns;
}

/* --- Life --- */

static struct vl_budget *vl_budget_find(u64 id)
{
	struct vl_budget *budget;

	list_for_each_entry(budget, &vl_budgets, in_all)
		if (budget->id == id)
			return budget;
	return NULL;
}

/* Returns a budget, new or as others have it, at this rate from now on; NULL: no memory. */
static struct vl_budget *vl_budget_get(u64 id, u64 rate)
{
	struct vl_budget *budget;
	unsigned long flags;

	mutex_lock(&vl_budgets_lock);
	budget = vl_budget_find(id);
	if (!budget) {
		budget = kzalloc(sizeof(*budget), GFP_KERNEL);
		if (!budget)
			goto out;
		spin_lock_init(&budget->lock);
		budget->id = id;
		list_add_tail(&budget->in_all, &vl_budgets);
	}
	budget->users++;
	spin_lock_irqsave(&budget->lock, flags);
	if (budget->rate != rate)
		budget->rest = 0;
	budget->rate = rate;
	spin_unlock_irqrestore(&budget->lock, flags);
out:
	mutex_unlock(&vl_budgets_lock);
	return budget;
}

static void vl_budget_put(struct vl_budget *budget)
{
	mutex_lock(&vl_budgets_lock);
	if (!--budget->users) {
		list_del(&budget->in_all);
		kfree(budget);
	}
	mutex_unlock(&vl_budgets_lock);
}

void vl_draws_put(struct vl_draws *draws)
{
	while (draws->count)
		vl_budget_put(draws->of[--draws->count].budget);
}

int vl_draws_parse(const struct nlattr *attribute, struct vl_draws *draws, struct netlink_ext_ack *extack)
{
	int count = attribute ? nla_len(attribute) / (int)sizeof(struct vl_draw_options) : 0;
	int i;

	draws->count = 0;
	if (!attribute)
		return 0;
	if (nla_len(attribute) % sizeof(struct vl_draw_options) || count > VL_MOST_DRAWS) {
		NL_SET_ERR_MSG(extack, "vl: what a port draws on is a row of at most 24 budgets");
		return -EINVAL;
	}
	for (i = 0; i < count; i++) {
		struct vl_draw_options wish;
		struct vl_budget *budget;

		memcpy(&wish, nla_data(attribute) + i * sizeof(wish), sizeof(wish));
		if (!wish.rate || wish.rate > VL_MOST_BUDGET || !wish.weight || wish.weight > VL_MOST_DRAW_WEIGHT) {
			NL_SET_ERR_MSG(extack, "vl: a budget has no rate, or a weight of 0 or above 100, or too much");
			vl_draws_put(draws);
			return -EINVAL;
		}
		budget = vl_budget_get(wish.budget, wish.rate);
		if (!budget) {
			vl_draws_put(draws);
			return -ENOMEM;
		}
		draws->of[draws->count++] = (struct vl_drawn){ budget, wish.input_index, wish.weight };
	}
	return 0;
}

int vl_draws_dump(const struct vl_draws *draws, struct sk_buff *answer)
{
	struct vl_draw_options told[VL_MOST_DRAWS];
	int i;

	if (!draws->count)
		return 0;
	for (i = 0; i < draws->count; i++)
		told[i] = (struct vl_draw_options){
			.budget = draws->of[i].budget->id,
			.rate = draws->of[i].budget->rate,
			.input_index = draws->of[i].input_index,
			.weight = draws->of[i].weight,
		};
	return nla_put(answer, VL_OPTION_DRAWS, draws->count * sizeof(told[0]), told);
}

/* --- Programs: /proc/vl_budgets --- */

/* Takes one piece for a program and waits until it has been given. Returns 0, -ENOENT or -EINTR. */
static int vl_take_piece(u64 id, u64 bytes, u64 *at_ns)
{
	struct vl_budget *budget;
	ktime_t end;
	u64 end_ns;

	mutex_lock(&vl_budgets_lock);
	budget = vl_budget_find(id);
	if (budget)
		vl_budget_take(budget, bytes, VL_WEIGHT_ONE, *at_ns, &end_ns);
	mutex_unlock(&vl_budgets_lock);
	if (!budget)
		return -ENOENT;
	*at_ns = end_ns;
	end = ns_to_ktime(end_ns);
	do {
		if (fatal_signal_pending(current))
			return -EINTR;
		set_current_state(TASK_KILLABLE);
	} while (schedule_hrtimeout_range(&end, 0, HRTIMER_MODE_ABS));
	return 0;
}

/* A struct vl_reservation: returns once all of it has been given, in pieces, between which others have their turns. */
static ssize_t vl_budgets_write(struct file *file, const char __user *data, size_t size, loff_t *at)
{
	struct vl_reservation wish;
	u64 at_ns = ktime_get_ns(), piece;
	int error;

	if (size != sizeof(wish))
		return -EINVAL;
	if (copy_from_user(&wish, data, sizeof(wish)))
		return -EFAULT;
	while (wish.bytes) {
		piece = min_t(u64, wish.bytes, VL_RESERVED_PIECE);
		error = vl_take_piece(wish.budget, piece, &at_ns);
		if (error)
			return error;
		wish.bytes -= piece;
	}
	return size;
}

/* A struct vl_budget_stats for each. */
static int vl_budgets_show(struct seq_file *answer, void *unused)
{
	struct vl_budget_stats stats;
	struct vl_budget *budget;
	unsigned long flags;

	mutex_lock(&vl_budgets_lock);
	list_for_each_entry(budget, &vl_budgets, in_all) {
		spin_lock_irqsave(&budget->lock, flags);
		stats = (struct vl_budget_stats){
			.budget = budget->id,
			.rate = budget->rate,
			.drawn = budget->drawn,
			.waited_ns = budget->waited_ns,
			.now_ns = ktime_get_ns(),
		};
		spin_unlock_irqrestore(&budget->lock, flags);
		seq_write(answer, &stats, sizeof(stats));
	}
	mutex_unlock(&vl_budgets_lock);
	return 0;
}

static int vl_budgets_open(struct inode *inode, struct file *file)
{
	return single_open(file, vl_budgets_show, NULL);
}

static const struct proc_ops vl_budgets_ops = {
	.proc_open = vl_budgets_open,
	.proc_read = seq_read,
	.proc_lseek = seq_lseek,
	.proc_write = vl_budgets_write,
	.proc_release = single_release,
};

int vl_budget_module_init(void)
{
	return proc_create(VL_BUDGETS_FILE, 0600, NULL, &vl_budgets_ops) ? 0 : -ENOMEM;
}

void vl_budget_module_exit(void)
{
	remove_proc_entry(VL_BUDGETS_FILE, NULL);
}
