#include "faultinject/control/effects.h"

namespace faultinject {

const char* to_string(Effect effect) {
  switch (effect) {
    case Effect::kNone: return "nothing";
    case Effect::kQpToErr: return "QP moved to ERR";
    case Effect::kQpConnectedDead: return "QP connected over a dead port";
    case Effect::kPortErrDelivered: return "PORT_ERR delivered";
    case Effect::kPortActiveDelivered: return "PORT_ACTIVE delivered";
    case Effect::kQpFatalDelivered: return "QP_FATAL delivered";
    case Effect::kWcWithheld: return "WC withheld";
    case Effect::kWcShown: return "WC shown";
    case Effect::kFlushShown: return "flushes shown";
    case Effect::kWcRewritten: return "WC rewritten";
    case Effect::kWrWithheld: return "WR withheld";
    case Effect::kWrSeen: return "WR seen";
  }
  return "unknown";
}

}  // namespace faultinject
