#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""profile.py under geni-lib: the request for each hardware type, and the parameters that it must refuse.

    profile_test.py FOLDER      FOLDER keeps geni-lib from one time to the next; exit status 77: it cannot be had here
"""
import itertools
import json
import os
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.join(HERE, "..", "..")
sys.path.insert(0, HERE)
import geni_lib  # noqa: E402

RSPEC = "{http://www.geni.net/resources/rspec/3}"
EMULAB = "{http://www.protogeni.net/resources/rspec/ext/emulab/1}"
NODE_TYPES = ["c6525-100g", "d6515", "d7525", "d8545", "r7525", "sm110p"]
SLOW_CARD = ["c6525-100g", "r7525", "sm110p"]  # they have ports of 25 Gbit/s, too
python, source = None, None


def profile(**parameters):
    words = [python, os.path.join(TOP, "profile.py")]
    for name, value in parameters.items():
        words += ["--" + name, str(value)]
    return subprocess.run(words, capture_output=True, text=True, timeout=120, check=False,
                          env=dict(os.environ, PYTHONPATH=source, PYTHONDONTWRITEBYTECODE="1", PYTHONWARNINGS="ignore"))


class Request:
    """What is in an RSpec."""
    def __init__(self, text):
        root = ElementTree.fromstring(text)
        assert root.tag == RSPEC + "rspec" and root.get("type") == "request", root.tag
        self.nodes = {node.get("client_id"): node for node in root.findall(RSPEC + "node")}
        self.lans = {link.get("client_id"): link for link in root.findall(RSPEC + "link")}
        self.tour = "".join(root.itertext())

    def addresses(self, name):
        return {interface.get("client_id"): [(ip.get("address"), ip.get("netmask")) for ip in interface.findall(RSPEC + "ip")]
                for interface in self.nodes[name].findall(RSPEC + "interface")}

    def service(self, name):
        services = [each for each in self.nodes[name].iter(RSPEC + "execute")]
        assert len(services) == 1, services
        return services[0].get("shell"), services[0].get("command")


class ProfileTest(unittest.TestCase):
    def request(self, **parameters):
        made = profile(**parameters)
        self.assertEqual(made.returncode, 0, made.stderr)
        return Request(made.stdout)

    def refused(self, name, words, **parameters):
        made = profile(**parameters)
        self.assertGreater(made.returncode, 100, made.stdout + made.stderr)
        self.assertEqual(made.stdout, "", "a request came out beside the error")
        errors = json.loads(made.stderr)
        self.assertIn(name, [each for error in errors for each in error["params"]], made.stderr)
        self.assertRegex(" ".join(error["message"] for error in errors), words)

    def test_each_type_gets_its_nodes_rails_and_services(self):
        for kind, nodes in itertools.product(NODE_TYPES, (2, 3)):
            with self.subTest(kind=kind, nodes=nodes):
                request = self.request(nodeType=kind, nodeCount=nodes)
                self.assertEqual(sorted(request.nodes), ["node%d" % index for index in range(nodes)])
                self.assertEqual(sorted(request.lans), ["rail0", "rail1"])
                for index in range(nodes):
                    node = request.nodes["node%d" % index]
                    self.assertEqual([each.get("name") for each in node.findall(RSPEC + "hardware_type")], [kind])
                    self.assertEqual(node.get("exclusive"), "true")
                    self.assertEqual(node.find(RSPEC + "sliver_type").get("name"), "raw")
                    image = node.find(RSPEC + "sliver_type").find(RSPEC + "disk_image").get("name")
                    self.assertEqual(image, "urn:publicid:IDN+emulab.net+image+emulab-ops//UBUNTU22-64-STD")
                    self.assertEqual(request.addresses("node%d" % index), {
                        "node%d:rail%d" % (index, rail): [("10.10.%d.%d" % (rail, index + 1), "255.255.255.0")]
                        for rail in range(2)})
                    shell, command = request.service("node%d" % index)
                    self.assertEqual(shell, "bash")
                    self.assertRegex(command, r"^sudo -H bash /local/repository/cloudlab/setup\.sh --type %s --node %d --nodes %d "
                                              r"--rails 2 --rate 0 --fabric verbs --scenario paper --autorun 0$" % (kind, index, nodes))

    def test_a_rail_is_a_lan_with_one_port_of_each_node_at_the_speed_of_its_ports(self):
        for kind, speed in [(kind, 100) for kind in NODE_TYPES] + [(kind, 25) for kind in SLOW_CARD]:
            with self.subTest(kind=kind, speed=speed):
                request = self.request(nodeType=kind, nodeCount=3, linkSpeed=speed)
                for rail, lan in ((rail, request.lans["rail%d" % rail]) for rail in range(2)):
                    self.assertEqual([each.get("name") for each in lan.findall(RSPEC + "link_type")], ["lan"])
                    self.assertEqual(sorted(each.get("client_id") for each in lan.findall(RSPEC + "interface_ref")),
                                     ["node%d:rail%d" % (index, rail) for index in range(3)])
                    capacities = {each.get("capacity") for each in lan.findall(RSPEC + "property")}
                    self.assertEqual(capacities, {str(speed * 1000000)})
                    self.assertEqual(lan.find(EMULAB + "best_effort").get("enabled"), "true")
                    self.assertEqual(lan.find(EMULAB + "vlan_tagging").get("enabled"), "false")
                    self.assertIsNone(lan.find(EMULAB + "link_multiplexing"), "two rails might share a port")

    def test_a_rate_below_the_ports_is_told_to_the_nodes(self):
        for wanted, port, limit in ((0, 100, 0), (10, 25, 10), (25, 25, 0), (40, 100, 40), (100, 100, 0)):
            request = self.request(nodeType="r7525", linkSpeed=wanted)
            capacities = {each.get("capacity") for each in request.lans["rail0"].findall(RSPEC + "property")}
            self.assertEqual(capacities, {str(port * 1000000)})
            self.assertIn(" --rate %d " % limit, request.service("node1")[1])

    def test_the_choices_reach_the_node(self):
        request = self.request(nodeType="d7525", fabric="rxe", scenario="nic_down", autorun="True", rails=1,
                               osImage="urn:publicid:IDN+emulab.net+image+emulab-ops//UBUNTU24-64-STD")
        self.assertTrue(request.service("node0")[1].endswith("--rails 1 --rate 0 --fabric rxe --scenario nic_down --autorun 1"))
        self.assertEqual(sorted(request.lans), ["rail0"])
        image = request.nodes["node1"].find(RSPEC + "sliver_type").find(RSPEC + "disk_image").get("name")
        self.assertTrue(image.endswith("UBUNTU24-64-STD"))

    def test_one_node_alone_has_no_lan(self):
        request = self.request(nodeCount=1, rails=0, fabric="vhca")
        self.assertEqual((sorted(request.nodes), request.lans, request.addresses("node0")), (["node0"], {}, {}))

    def test_the_instructions_are_in_the_request(self):
        tour = self.request().tour
        self.assertIn("its traffic moves to another NIC", tour)
        self.assertIn("cloudlab/reproduce.sh", tour)

    def test_wrong_parameters_are_refused_with_a_sentence(self):
        self.refused("nodeCount", "1 to 32", nodeCount=0, fabric="vhca")
        self.refused("nodeCount", "1 to 32", nodeCount=33)
        self.refused("rails", "d6515 has no 3 ports .* it has 2 of 100 Gbit/s", rails=3)
        self.refused("rails", "has no 3 ports .* 2 of 25 Gbit/s and 2 of 100", rails=3, nodeType="r7525")
        self.refused("rails", "at least one rail", rails=0)
        self.refused("rails", "at least one rail", rails=-1, fabric="vhca")
        self.refused("fabric", "needs two nodes", nodeCount=1)
        for name in ("a b", "$(reboot)", "x;y", "", "a/b"):
            self.refused("scenario", "letters, digits", scenario=name)

    def test_what_the_nodes_are_told_is_what_set_up_understands(self):
        told = self.request().service("node0")[1].split("cloudlab/setup.sh ")[1].split()
        with tempfile.TemporaryDirectory() as root:
            for words, status in ((told, 1), (told + ["--colour", "red"], 64)):  # 1: it understood, and has not run here yet
                made = subprocess.run([os.path.join(TOP, "cloudlab", "setup.sh"), *words, "--status"], capture_output=True,
                                      text=True, timeout=60, check=False, env=dict(os.environ, R2CCL_SETUP_ROOT=root))
                self.assertEqual(made.returncode, status, made.stdout + made.stderr)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    try:
        python, source = geni_lib.environment(os.path.abspath(sys.argv.pop()))
    except (geni_lib.Missing, subprocess.TimeoutExpired, OSError) as error:
        print("skipped: geni-lib cannot be had here:", error)
        sys.exit(77)
    unittest.main()
