#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""R2CCL on machines with several RDMA ports: when a NIC fails, its traffic moves to another NIC.

Each rail is a separate LAN, with one port of every node and its own /24 network. At every boot each node sets itself up (packages,
build, addresses, rate limits). With autorun the first node then runs the scenarios and makes the figures.

Instructions:
Wait until the state of all nodes is 'Ready' and the Startup column says 'Finished' (20 to 40 minutes, most of it the build). Then
log in to node0. `/local/repository/cloudlab/setup.sh --status` says what was done and what is missing;
`sudo /local/repository/cloudlab/reproduce.sh` runs the scenarios on virtual NICs and makes the figures. That takes two hours and a
quarter; after an interruption the same command continues. Steps that need more than this machine has are skipped, with a message. To
test the nodes' own NICs, begin with `/local/repository/r2bench doctor --first-day`. The guide is cloudlab/README.md. Copy the results
before the experiment ends.
"""
import re

import geni.portal as portal
import geni.rspec.pg as pg

IMAGE = "urn:publicid:IDN+emulab.net+image+emulab-ops//"
IMAGES = [(IMAGE + "UBUNTU22-64-STD", "Ubuntu 22.04"),
          (IMAGE + "UBUNTU24-64-STD", "Ubuntu 24.04"),
          (IMAGE + "DEBIAN12-64-STD", "Debian 12")]

# Ports of each type by their speed in Gbit/s. One port of the slower card may belong to the control network:
# the portal then reports that the experiment does not fit, and fewer rails must be requested.
NODE_TYPES = {
    "r7525": {"ports": {25: 2, 100: 2}, "says": "Clemson: ConnectX-5 2x25G, BlueField-2 2x100G, 2x V100S"},
    "d7525": {"ports": {100: 2}, "says": "Wisconsin: ConnectX-6 2x100G, A30"},
    "d8545": {"ports": {100: 2}, "says": "Wisconsin: ConnectX-6 2x100G, 4x A100"},
    "c6525-100g": {"ports": {25: 2, 100: 2}, "says": "Utah: ConnectX-5 2x25G, ConnectX-5 Ex 2x100G"},
    "d6515": {"ports": {100: 2}, "says": "Utah: ConnectX-5 2x100G"},
    "sm110p": {"ports": {25: 2, 100: 2}, "says": "Wisconsin: ConnectX-6 Lx 2x25G, ConnectX-6 Dx 2x100G"},
}
FABRICS = [("verbs", "verbs: the NICs of the nodes"),
           ("rxe", "rxe: soft RoCE over the experiment ports, for nodes without RDMA"),
           ("vhca", "vhca: virtual NICs; each node runs its scenarios alone")]
MOST_NODES = 32


def port_speed(ports, rails, wanted):
    """The slowest kind of port that carries `wanted` Gbit/s (0: the fastest) and of which there are enough, or None."""
    enough = sorted(speed for speed, count in ports.items() if count >= rails)
    if wanted == 0:
        return enough[-1] if enough else None
    return next((speed for speed in enough if speed >= wanted), None)


def parameters(context):
    kinds = portal.ParameterType
    context.defineParameter("nodeCount", "Nodes", kinds.INTEGER, 2,
                            longDescription="1 to %d. With one node, only the fabric vhca can be used." % MOST_NODES)
    context.defineParameter("nodeType", "Hardware type", kinds.NODETYPE, "d6515",
                            [(name, name + " (" + NODE_TYPES[name]["says"] + ")") for name in sorted(NODE_TYPES)])
    context.defineParameter("rails", "Rails", kinds.INTEGER, 2,
                            longDescription="Ports of each node; rail i joins port i of every node. 0 only with the fabric vhca.")
    context.defineParameter("linkSpeed", "Rate of a rail in Gbit/s", kinds.INTEGER, 0, [(0, "as fast as the port"), 10, 25, 40, 100],
                            longDescription="A rate below that of the port is a limit in the NIC, set again at each boot.")
    context.defineParameter("osImage", "Disk image", kinds.IMAGE, IMAGES[0][0], IMAGES)
    context.defineParameter("fabric", "Fabric of the scenarios", kinds.STRING, "verbs", FABRICS)
    context.defineParameter("scenario", "Scenario", kinds.STRING, "paper",
                            longDescription="'paper': the whole set of cloudlab/reproduce.sh; else a name from its --list, e.g. nic_down.")
    context.defineParameter("autorun", "Run it when all nodes are ready", kinds.BOOLEAN, False)
    return context.bindParameters()


def checked(context, values):
    """The speed of the ports that the rails take. Reports all that is wrong with the parameters, and ends."""
    def wrong(text, name):
        context.reportError(portal.ParameterError(text, [name]))
    if not 1 <= values.nodeCount <= MOST_NODES:
        wrong("The number of nodes is 1 to %d, not %d." % (MOST_NODES, values.nodeCount), "nodeCount")
    if not re.match(r"^[A-Za-z0-9_.-]{1,64}$", values.scenario):
        wrong("A scenario's name has letters, digits, '_', '-' and '.', e.g. nic_down.", "scenario")
    if values.fabric != "vhca" and values.nodeCount < 2:
        wrong("The fabric %s needs two nodes; one node can only do vhca." % values.fabric, "fabric")
    ports = NODE_TYPES[values.nodeType]["ports"]
    speed = None
    if values.rails > 0:
        speed = port_speed(ports, values.rails, values.linkSpeed)
        if speed is None:
            wrong("%s has no %d ports of %d Gbit/s or more; it has %s." % (
                values.nodeType, values.rails, values.linkSpeed,
                " and ".join("%d of %d Gbit/s" % (ports[each], each) for each in sorted(ports))), "rails")
    elif values.rails < 0 or values.fabric != "vhca":
        wrong("The fabric %s needs at least one rail." % values.fabric, "rails")
    context.verifyParameters()
    return speed


def setup_command(values, index, speed):
    rate = values.linkSpeed if speed and 0 < values.linkSpeed < speed else 0
    return ("sudo -H bash /local/repository/cloudlab/setup.sh --type %s --node %d --nodes %d --rails %d --rate %d"
            " --fabric %s --scenario %s --autorun %d" % (
                values.nodeType, index, values.nodeCount, values.rails, rate, values.fabric, values.scenario,
                1 if values.autorun else 0))


def build_request(context, values, speed):
    request = context.makeRequestRSpec()
    lans = []
    if values.nodeCount > 1:
        for rail in range(values.rails):
            lan = request.LAN("rail%d" % rail)
            lan.bandwidth = speed * 1000 * 1000  # kbit/s: the mapper takes a port of just this speed
            lan.best_effort = True               # and puts no delay node between
            lan.vlan_tagging = False
            lan.link_multiplexing = False
            lans.append(lan)
    for index in range(values.nodeCount):
        node = request.RawPC("node%d" % index)
        node.hardware_type = values.nodeType
        node.disk_image = values.osImage
        if hasattr(node, "installRootKeys"):  # the portal's geni-lib: root of each node may log in to the others
            node.installRootKeys(True, True)
        for rail, lan in enumerate(lans):
            interface = node.addInterface("rail%d" % rail)
            interface.addAddress(pg.IPv4Address("10.10.%d.%d" % (rail, index + 1), "255.255.255.0"))
            lan.addInterface(interface)
        node.addService(pg.Execute(shell="bash", command=setup_command(values, index, speed)))
    return request


def main():
    context = portal.Context()
    values = parameters(context)
    speed = checked(context, values)
    context.printRequestRSpec(build_request(context, values, speed))


if __name__ in ("__main__", "__builtin__", "builtins"):
    main()
