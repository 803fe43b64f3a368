/* One inference of the KServe dialect: between v2.c, which has the protocol, and v2_inputs.c, which reads tensors. */
#ifndef WOI_SERVE_V2_H
#define WOI_SERVE_V2_H

#include "server.h"

enum { WOI_IDS, WOI_SCORES, WOI_NAMES, WOI_LOG_Z, WOI_CANDIDATES, WOI_N_OUTPUTS };

typedef struct woi_infer {
    woi_work work; /* the first */
    json_t *id;    /* its own; or NULL */
    bool wanted[WOI_N_OUTPUTS], binary[WOI_N_OUTPUTS];
    const char *tail; /* what follows the JSON: tensors, one behind the other */
    size_t tail_bytes;
} woi_infer;

/* Makes the job's queries of the inputs. */
bool woi_v2_inputs(woi_infer *infer, const woi_server *server, const woi_snapshot *snapshot, const json_t *inputs,
                   woi_reply *reply);

#endif
