/* c/tunnel.c */

struct gs_text { const char *p; size_t n; };

uint64_t gs_most_tunnels(void);
int gs_send(int fd, const char *p, size_t n, vtim_dur patience);
void gs_part(int fd, vtim_dur patience);
void gs_relay(int client, int origin, struct gs_text early, uint64_t *down);
void gs_hand_on(int client, int origin, struct gs_text early, void *framing, vtim_dur between, uint64_t *down);
