/*
 * Every member of the engine's own structs that the shim reads or writes, and every function of the engine that no installed header
 * declares. Neither is a stable interface: a member that was renamed does not compile, and one whose type has changed is found here,
 * for each engine that ghost is built for. tests/guards.rs looks for members that are missing here.
 */
#ifndef GHOST_PRIVATE_H
#define GHOST_PRIVATE_H

#include "engine.h"

#define GS_MEMBER(of, member, type)                                                                                     \
	_Static_assert(__builtin_types_compatible_p(__typeof__(((struct of *)0)->member), type),                        \
	    "struct " #of " has another type for " #member " in this engine: see crates/ghost/c/private.h")

/* Bit-fields have no type of their own: they must be assignable. Never called. */
#define GS_BIT(of, member)                                                                                              \
	static inline void gs_bit_##of##_##member(struct of *it) { it->member = 1; }                                    \
	_Static_assert(__builtin_types_compatible_p(__typeof__(((struct of *)0)->member + 0U), unsigned),               \
	    "struct " #of " has no unsigned bit " #member " in this engine: see crates/ghost/c/private.h")

GS_MEMBER(http, logtag, enum VSL_tag_e);
GS_MEMBER(http, status, uint16_t);
GS_MEMBER(http, shd, uint16_t);
GS_MEMBER(http, nhd, uint16_t);
GS_MEMBER(http, ws, struct ws *);
GS_MEMBER(http, vsl, struct vsl_log *);
GS_MEMBER(http, hd, txt *);
GS_MEMBER(http, hdf, unsigned char *);

GS_BIT(req, is_hit);
GS_BIT(req, hash_ignore_busy);
GS_MEMBER(req, req_body_status, body_status_t);
GS_MEMBER(req, ws, struct ws[1]);
GS_MEMBER(req, acct, struct acct_req);
GS_MEMBER(acct_req, resp_hdrbytes, uint64_t);
GS_MEMBER(acct_req, resp_bodybytes, uint64_t);
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
GS_MEMBER(busyobj, t_resp, vtim_real);
GS_MEMBER(busyobj, no_retry, const char *);
GS_MEMBER(busyobj, ws, struct ws[1]);
GS_MEMBER(busyobj, vsl, struct vsl_log[1]);
GS_MEMBER(busyobj, acct, struct acct_bereq);
GS_MEMBER(acct_bereq, bereq_hdrbytes, uint64_t);
GS_BIT(busyobj, uncacheable);
GS_BIT(busyobj, is_bgfetch);
GS_MEMBER(busyobj, digest, uint8_t[DIGEST_LEN]);

GS_MEMBER(objcore, t_origin, vtim_real);
GS_MEMBER(objcore, ttl, float);
GS_MEMBER(objcore, grace, float);
GS_MEMBER(objcore, keep, float);
GS_MEMBER(objcore, flags, uint8_t);
GS_MEMBER(objcore, stobj, struct storeobj[1]);
GS_MEMBER(storeobj, stevedore, const struct stevedore *);
GS_MEMBER(objcore, boc, struct boc *);
GS_MEMBER(boc, GS_SO_FAR, uint64_t);

GS_MEMBER(http_conn, rfd, int *);
GS_MEMBER(http_conn, doclose, stream_close_t);
GS_MEMBER(http_conn, content_length, ssize_t);
GS_MEMBER(http_conn, pipeline_b, char *);
GS_MEMBER(http_conn, pipeline_e, char *);
GS_MEMBER(http_conn, rxbuf_b, char *);
GS_MEMBER(http_conn, rxbuf_e, char *);
GS_MEMBER(http_conn, ws, struct ws *);
GS_MEMBER(http_conn, body_status, body_status_t);
GS_MEMBER(http_conn, first_byte_timeout, vtim_dur);
GS_MEMBER(http_conn, between_bytes_timeout, vtim_dur);

GS_MEMBER(sess, fd, int);

GS_MEMBER(vfp_entry, bytes_out, uint64_t);
GS_MEMBER(vfp_entry, priv1, void *);
GS_MEMBER(vfp_ctx, resp, struct http *);
GS_MEMBER(vfp_ctx, req, struct http *);

GS_MEMBER(director, priv, void *);
GS_MEMBER(director, vcl_name, char *);
GS_MEMBER(director, vdir, struct vcldir *);
GS_MEMBER(vcldir, methods, const struct vdi_methods *);
GS_MEMBER(vdi_methods, gethdrs, vdi_gethdrs_f *);
GS_MEMBER(vdi_methods, http1pipe, vdi_http1pipe_f *);
GS_MEMBER(vdi_methods, finish, vdi_finish_f *);

/* What cache_param points to. */
GS_MEMBER(params, http_resp_size, unsigned);
GS_MEMBER(params, idle_send_timeout, vtim_dur);
GS_MEMBER(params, pipe_timeout, vtim_dur);
GS_MEMBER(params, shortlived, vtim_dur);
GS_MEMBER(params, wthread_max, unsigned);
GS_MEMBER(params, wthread_pools, unsigned);

/*
 * Functions of headers that are not installed. The compiler cannot hold them against the engine: look at its source for a new one.
 */

/* proxy/cache_proxy.h; the engine's own vmod_proxy calls it. */
int VPX_tlv(const struct req *, int, const void **, int *);

/* http1/cache_http1.h */
int V1F_Setup_Fetch(struct vfp_ctx *, struct http_conn *);

/* cache_objhead.h. Until VRT 22 the caller said how many of those who wait for the object are woken: here, none. */
#if VRT_MAJOR_VERSION >= 23
int HSH_DerefObjCore(struct worker *, struct objcore **);
#  define GS_DEREF(wrk, oc) HSH_DerefObjCore(wrk, oc)
#else
int HSH_DerefObjCore(struct worker *, struct objcore **, int);
#  define GS_DEREF(wrk, oc) HSH_DerefObjCore(wrk, oc, 0)
#endif

/* Gives a reference up; *oc becomes NULL. */
static inline void
gs_deref(struct worker *wrk, struct objcore **oc)
{
	(void)GS_DEREF(wrk, oc);
}

#endif
