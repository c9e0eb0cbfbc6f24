// SPDX-License-Identifier: Apache-2.0
#include "faultinject/control/effects.h"

namespace faultinject {

const char* to_string(Effect effect) {
  switch (effect) {
    case Effect::kNone:
      return "nothing";
    case Effect::kQpToErr:
      return "QP moved to ERR";
    case Effect::kQpConnectedDead:
      return "QP connected over a dead port";
    case Effect::kPortErrDelivered:
      return "PORT_ERR delivered";
    case Effect::kPortActiveDelivered:
      return "PORT_ACTIVE delivered";
    case Effect::kQpFatalDelivered:
      return "QP_FATAL delivered";
    case Effect::kWcWithheld:
      return "WC withheld";
    case Effect::kWcShown:
      return "WC shown";
    case Effect::kFlushShown:
      return "flushes shown";
    case Effect::kWcRewritten:
      return "WC rewritten";
    case Effect::kWrWithheld:
      return "WR withheld";
    case Effect::kWrSeen:
      return "WR seen";
    case Effect::kNextSeen:
      return "the program's next completion there";
    case Effect::kWcDropped:
      return "WC dropped";
    case Effect::kWrSpoiled:
      return "WR made to fail";
    case Effect::kReordered:
      return "sends reordered";
    case Effect::kPostRefused:
      return "post refused";
    case Effect::kPollRefused:
      return "poll refused";
    case Effect::kRegistrationRefused:
      return "memory registration refused";
    case Effect::kModifyRefused:
      return "modify_qp refused";
    case Effect::kCreateRefused:
      return "a new object refused";
    case Effect::kEventDelivered:
      return "async event delivered";
    case Effect::kLinkDown:
      return "link down";
    case Effect::kLinkUp:
      return "link up";
    case Effect::kFrozen:
      return "device frozen";
    case Effect::kThawed:
      return "device responds again";
    case Effect::kGidHidden:
      return "GID removed";
    case Effect::kCqDead:
      return "CQ failed";
    case Effect::kDatagramLost:
      return "datagram lost";
    case Effect::kDeviceGone:
      return "device gone";
    case Effect::kCommandRefused:
      return "a command refused";
    case Effect::kCommandIgnored:
      return "a command ignored";
    case Effect::kDescriptorEnded:
      return "async descriptor ended";
    case Effect::kChannelEnded:
      return "completion channel ended";
    case Effect::kKernelLinkDown:
      return "the kernel reports that the link is down";
    case Effect::kQdiscSet:
      return "tc shows the qdisc";
    case Effect::kFlowRuleSet:
      return "the switch shows the rule";
    case Effect::kPciDeviceGone:
      return "the PCI device is gone";
    case Effect::kCommandChecked:
      return "the user's check confirms the cut";
    case Effect::kPutBack:
      return "put back";
  }
  return "unknown";
}

}  // namespace faultinject
