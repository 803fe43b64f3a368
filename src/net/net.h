/* The networks that end in a wide layer, and their data: all that the tool and the benchmarks use of this room. */
#ifndef WOI_NET_NET_H
#define WOI_NET_NET_H

#include "net/deb822.h"
#include "net/examples.h"
#include "net/network.h"
#include "net/queries.h"
#include "net/split.h"
#include "net/synthetic.h"
#include "net/tokens.h"
#include "net/train.h"
#include "store/names.h"

#endif
