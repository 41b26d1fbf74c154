/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What `line` and `dcqcn` have in common: no congestion window, frames one by one, a short queue in the host.
 */
#ifndef TCP_LINE_H
#define TCP_LINE_H

#include <linux/version.h>
#include <net/tcp.h>

/* Segments: beyond any receiver's window, and small enough for what the kernel multiplies it by. */
#define LINE_WINDOW 16384

/* Paces payload, in bytes per second, within what the program itself has set (SO_MAX_PACING_RATE). */
static inline void line_pace(struct sock *sk, unsigned long rate)
{
	WRITE_ONCE(sk->sk_pacing_rate, min(rate, READ_ONCE(sk->sk_max_pacing_rate)));
}

/* What of a socket may wait in its host is two frames, or what its rate sends in 2^-shift s. */
static inline void line_init(struct sock *sk, u8 shift)
{
	tcp_sk(sk)->snd_ssthresh = TCP_INFINITE_SSTHRESH;
	tcp_snd_cwnd_set(tcp_sk(sk), LINE_WINDOW);
	sk->sk_gso_max_segs = 1;
	WRITE_ONCE(sk->sk_pacing_shift, shift);
	cmpxchg(&sk->sk_pacing_status, SK_PACING_NONE, SK_PACING_NEEDED);
}

static inline u32 line_ssthresh(struct sock *sk)
{
	return TCP_INFINITE_SSTHRESH;
}

static inline u32 line_undo_cwnd(struct sock *sk)
{
	return LINE_WINDOW;
}

/* Called with every acknowledgement. Only a timeout has set the window to less since then. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 10, 0)
static inline void line_cong_control(struct sock *sk, u32 ack, int flag, const struct rate_sample *sample)
#else
static inline void line_cong_control(struct sock *sk, const struct rate_sample *sample)
#endif
{
	tcp_snd_cwnd_set(tcp_sk(sk), LINE_WINDOW);
}

/*
 * Called when a program has filled its send buffer, which otherwise grows with the congestion window: it may have what
 * two of the receiver's windows hold, twice that with what the kernel keeps beside it. Returns 0: it is done.
 */
static inline u32 line_sndbuf_expand(struct sock *sk)
{
	int most = READ_ONCE(sock_net(sk)->ipv4.sysctl_tcp_wmem[2]);
	u64 wanted = 4 * (u64)tcp_sk(sk)->max_window;

	if (READ_ONCE(sk->sk_sndbuf) < most)
		WRITE_ONCE(sk->sk_sndbuf, max_t(int, READ_ONCE(sk->sk_sndbuf), min_t(u64, wanted, most)));
	return 0;
}

/* Called whenever something may be sent: also the device may have been asked anew how many frames it takes at once. */
static inline u32 line_min_tso_segs(struct sock *sk)
{
	sk->sk_gso_max_segs = 1;
	return 1;
}

#endif
