/*
 * Bytes between a client and its origin: the answer to a request for a WebSocket, and what follows a 101. What an answer means is
 * decided in src/tunnel.rs.
 */

#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <stdio.h>
#include <unistd.h>
#include <sys/socket.h>

#include "engine.h"
#include "vtim.h"

#include "tunnel.h"

extern ssize_t ghost_framing_take(void *framing, const char *p, size_t n);
extern int ghost_framing_done(const void *framing);
extern double ghost_tunnel_total(void);

#define GS_ROOM 16384
/* One direction. */
struct gs_pump {
	int		from, to;
	char		*room;
	size_t		b, e;
	int		ended;		/* nothing more comes */
	int		done;		/* and the other side knows */
	uint64_t	moved;
};

/* So many tunnels at most: each takes a thread of varnishd's, and half of them is for other requests. */
uint64_t
gs_most_tunnels(void)
{
	uint64_t threads = (uint64_t)cache_param->wthread_max * cache_param->wthread_pools;

	return (threads / 2 > 0 ? threads / 2 : 1);
}

static int
gs_wait_ms(vtim_mono until)
{
	vtim_dur left = until - VTIM_mono();

	if (left <= 0)
		return (0);
	return (left > 3600. ? 3600000 : (int)(left * 1e3) + 1);
}

static int
gs_again(void)
{
	return (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
}

static void
gs_nonblocking(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	if (flags >= 0)
		(void)fcntl(fd, F_SETFL, flags | O_NONBLOCK);
}

/* All of it, within the time. */
int
gs_send(int fd, const char *p, size_t n, vtim_dur patience)
{
	vtim_mono until = VTIM_mono() + patience;
	struct pollfd pfd = { .fd = fd, .events = POLLOUT };
	ssize_t i;

	gs_nonblocking(fd);
	while (n > 0) {
		i = send(fd, p, n, MSG_NOSIGNAL);
		if (i > 0) {
			p += i;
			n -= (size_t)i;
		} else if (i < 0 && !gs_again())
			return (-1);
		else if (poll(&pfd, 1, gs_wait_ms(until)) <= 0 && VTIM_mono() >= until)
			return (-1);
	}
	return (0);
}

/*
 * The client's last bytes are read and forgotten for so many seconds: to close upon them would take the answer away. With none, only
 * what has come already is read.
 */
void
gs_part(int fd, vtim_dur patience)
{
	vtim_mono until = VTIM_mono() + patience;
	struct pollfd pfd = { .fd = fd, .events = POLLIN };
	char rest[1024];
	size_t all = 0;
	ssize_t i;

	(void)shutdown(fd, SHUT_WR);
	gs_nonblocking(fd);
	while (all < 1 << 20 && poll(&pfd, 1, gs_wait_ms(until)) > 0) {
		i = read(fd, rest, sizeof rest);
		if (i == 0 || (i < 0 && !gs_again()))
			return;
		all += i > 0 ? (size_t)i : 0;
	}
}

/* -1: broken. */
static int
gs_pump(struct gs_pump *p)
{
	ssize_t i;

	if (p->b == p->e && !p->ended) {
		i = read(p->from, p->room, GS_ROOM);
		if (i < 0 && !gs_again())
			return (-1);
		if (i == 0)
			p->ended = 1;
		p->b = 0;
		p->e = i > 0 ? (size_t)i : 0;
	}
	while (p->b < p->e) {
		i = send(p->to, p->room + p->b, p->e - p->b, MSG_NOSIGNAL);
		if (i < 0)
			return (gs_again() ? 0 : -1);
		p->b += (size_t)i;
		p->moved += (uint64_t)i;
	}
	if (p->ended && !p->done) {
		(void)shutdown(p->to, SHUT_WR);
		p->done = 1;
	}
	return (0);
}

/*
 * Both ways, until both sides have ended, nothing has moved for the idle time, or the whole time is over. `early`: what the
 * client sent behind its request.
 */
void
gs_relay(int client, int origin, struct gs_text early, uint64_t *down)
{
	struct gs_pump pumps[2] = {
		{ .from = client, .to = origin }, { .from = origin, .to = client },
	};
	struct pollfd pfd[2];
	vtim_dur idle = cache_param->pipe_timeout;
	vtim_mono end = VTIM_mono() + ghost_tunnel_total(), quiet;
	uint64_t moved = 0, now;
	char *room = malloc(2 * GS_ROOM);

	if (!(idle > 0 && idle < 1e9))
		idle = 1e9;
	if (room == NULL || gs_send(origin, early.p, early.n, idle) != 0) {
		free(room);
		return;
	}
	pumps[0].room = room;
	pumps[1].room = room + GS_ROOM;
	gs_nonblocking(client);
	gs_nonblocking(origin);
	quiet = VTIM_mono() + idle;
	while (!pumps[0].done || !pumps[1].done) {
		for (int i = 0; i < 2; i++) {
			const struct gs_pump *in = &pumps[i], *out = &pumps[1 - i];

			pfd[i].events = (short)((!in->ended && in->b == in->e ? POLLIN : 0) |
			    (out->b < out->e ? POLLOUT : 0));
			/* A connection that has hung up would be told of for ever. */
			pfd[i].fd = pfd[i].events == 0 ? -1 : in->from;
			pfd[i].revents = 0;
		}
		if (poll(pfd, 2, gs_wait_ms(quiet < end ? quiet : end)) < 0 && errno != EINTR)
			break;
		if (gs_pump(&pumps[0]) != 0 || gs_pump(&pumps[1]) != 0)
			break;
		now = pumps[0].moved + pumps[1].moved;
		if (now != moved) {
			moved = now;
			quiet = VTIM_mono() + idle;
		}
		if (VTIM_mono() >= quiet || VTIM_mono() >= end)
			break;
	}
	*down += pumps[1].moved;
	free(room);
}

/*
 * The body of an answer, and not a byte more; nothing of what the client sends. `early`: what came with the headers.
 */
void
gs_hand_on(int client, int origin, struct gs_text early, void *framing, vtim_dur between, uint64_t *down)
{
	struct pollfd pfd = { .fd = origin, .events = POLLIN };
	char *room = malloc(GS_ROOM);
	vtim_mono end = VTIM_mono() + ghost_tunnel_total();
	vtim_dur patience = cache_param->idle_send_timeout;
	ssize_t taken, i;

	if (room == NULL)
		return;
	gs_nonblocking(origin);
	for (;;) {
		taken = early.n == 0 ? 0 : ghost_framing_take(framing, early.p, early.n);
		if (taken < 0 || gs_send(client, early.p, (size_t)taken, patience) != 0)
			break;
		*down += (uint64_t)taken;
		if (ghost_framing_done(framing) || VTIM_mono() >= end)
			break;
		if (poll(&pfd, 1, gs_wait_ms(VTIM_mono() + between)) <= 0)
			break;
		i = read(origin, room, GS_ROOM);
		if (i == 0 || (i < 0 && !gs_again()))
			break;
		early.p = room;
		early.n = i > 0 ? (size_t)i : 0;
	}
	free(room);
}
