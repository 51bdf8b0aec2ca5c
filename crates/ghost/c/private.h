/*
 * Every member of the engine's own structs that the shim reads or writes. These structs are not a stable interface: a member that was
 * renamed does not compile, and one whose type has changed is found here, for each engine that ghost is built for.
 */
#ifndef GHOST_PRIVATE_H
#define GHOST_PRIVATE_H

#include "engine.h"

#define GS_MEMBER(of, member, type)                                                                                     \
	_Static_assert(__builtin_types_compatible_p(__typeof__(((struct of *)0)->member), type),                        \
	    "struct " #of " has another type for " #member " in this engine: see crates/ghost/c/private.h")

GS_MEMBER(http, shd, uint16_t);
GS_MEMBER(http, nhd, uint16_t);
GS_MEMBER(http, ws, struct ws *);
GS_MEMBER(http, vsl, struct vsl_log *);
GS_MEMBER(http, hd, txt *);
GS_MEMBER(http, hdf, unsigned char *);

GS_MEMBER(req, director_hint, VCL_BACKEND);
GS_MEMBER(req, d_grace, vtim_dur);
GS_MEMBER(req, d_ttl, vtim_dur);
GS_MEMBER(req, vcf, struct vcf *);
GS_MEMBER(req, restarts, unsigned);
GS_MEMBER(req, esi_level, unsigned);
GS_MEMBER(vcf, func, vcf_func_f *);
GS_MEMBER(vcf, priv, void *);
GS_MEMBER(req, t_prev, vtim_real);
GS_MEMBER(req, t_req, vtim_real);
GS_MEMBER(req, objcore, struct objcore *);
GS_MEMBER(req, htc, struct http_conn *);
GS_MEMBER(req, sp, struct sess *);
GS_MEMBER(req, wrk, struct worker *);

GS_MEMBER(busyobj, bereq, struct http *);
GS_MEMBER(busyobj, bereq0, struct http *);
GS_MEMBER(busyobj, beresp, struct http *);
GS_MEMBER(busyobj, director_req, VCL_BACKEND);
GS_MEMBER(busyobj, director_resp, VCL_BACKEND);
GS_MEMBER(busyobj, htc, struct http_conn *);
GS_MEMBER(busyobj, stale_oc, struct objcore *);
GS_MEMBER(busyobj, fetch_objcore, struct objcore *);
GS_MEMBER(busyobj, bereq_body, struct objcore *);
GS_MEMBER(busyobj, req, struct req *);
GS_MEMBER(busyobj, wrk, struct worker *);
GS_MEMBER(busyobj, vfc, struct vfp_ctx *);
GS_MEMBER(busyobj, t_first, vtim_real);
GS_MEMBER(busyobj, digest, uint8_t[DIGEST_LEN]);

GS_MEMBER(objcore, t_origin, vtim_real);
GS_MEMBER(objcore, ttl, float);
GS_MEMBER(objcore, grace, float);
GS_MEMBER(objcore, keep, float);
GS_MEMBER(objcore, boc, struct boc *);
GS_MEMBER(boc, GS_SO_FAR, uint64_t);

GS_MEMBER(http_conn, rfd, int *);
GS_MEMBER(http_conn, doclose, stream_close_t);
GS_MEMBER(http_conn, content_length, ssize_t);
GS_MEMBER(http_conn, pipeline_b, char *);
GS_MEMBER(http_conn, pipeline_e, char *);
GS_MEMBER(http_conn, between_bytes_timeout, vtim_dur);

#endif
