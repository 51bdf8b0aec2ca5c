/*
 * For ghost's own threads, which answer on the control socket: what they need of varnishd.
 */

#define _GNU_SOURCE
#include "config.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <stdio.h>
#include <unistd.h>
#include <sys/socket.h>

#include "engine.h"

struct gs_call {
	struct vrt_ctx	ctx[1];
	struct vcl	*vcl;
	struct worker	wrk[1];
};

const void *gs_vcl(VRT_CTX) { return (ctx->vcl); }

/*
 * Holds the VCL that is in use now: neither it nor its objects go before gs_call_end(). The worker is one by name only, for
 * functions that read stored headers.
 */
struct gs_call *
gs_call_begin(void)
{
	struct gs_call *c = calloc(1, sizeof *c);

	AN(c);
	VCL_Refresh(&c->vcl);
	INIT_OBJ(c->ctx, VRT_CTX_MAGIC);
	c->ctx->vcl = c->vcl;
	INIT_OBJ(c->wrk, WORKER_MAGIC);
	return (c);
}

const struct vrt_ctx *gs_call_ctx(const struct gs_call *c) { return (c->ctx); }
struct worker *gs_call_worker(struct gs_call *c) { return (c->wrk); }

void
gs_call_end(struct gs_call *c)
{
	VCL_Rel(&c->vcl);
	free(c);
}

/* 1 where somebody connects, 0 where the wake has ended. */
int
gs_await(int listener, int wake)
{
	struct pollfd pfd[2] = {{ .fd = listener, .events = POLLIN }, { .fd = wake, .events = POLLIN }};

	while (poll(pfd, 2, -1) < 0)
		continue;
	return (pfd[1].revents == 0);
}

/* Root, or the user that varnishd's child runs as. */
int
gs_peer_is_ours(int fd)
{
	struct ucred peer;
	socklen_t n = sizeof peer;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) != 0)
		return (0);
	return (peer.uid == 0 || peer.uid == geteuid());
}
