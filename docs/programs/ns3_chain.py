"""The flow of ``python -m app.benchmarks queueings`` in ns-3, a simulator without programs and sockets of a kernel.

One TCP flow through three switches (routers here), links of 10 Gbit/s and 0.5 us, an MTU of 4200. Prints how many
packets are forwarded per second of wall time. Needs ``pip install ns3==3.44.post0`` in an environment of its own.
"""

import time

from ns import ns

ROUTERS = 3
MIB = 300
PORT = 5000
MTU = 4200
HEADERS = 52  # IP, TCP and its timestamps

ns.cppyy.cppdef("""
namespace chain {
uint64_t forwarded = 0;
void count(const ns3::Ipv4Header&, ns3::Ptr<const ns3::Packet>, uint32_t) { forwarded++; }
void countAll() {
    ns3::Config::ConnectWithoutContext("/NodeList/*/$ns3::Ipv4L3Protocol/UnicastForward", ns3::MakeCallback(&count));
}
}
""")

for name in ("SndBufSize", "RcvBufSize"):
    ns.Config.SetDefault(f"ns3::TcpSocket::{name}", ns.UintegerValue(1 << 20))
ns.Config.SetDefault("ns3::TcpSocket::SegmentSize", ns.UintegerValue(MTU - HEADERS))
nodes = ns.NodeContainer()
nodes.Create(ROUTERS + 2)
ns.InternetStackHelper().Install(nodes)
links = ns.PointToPointHelper()
links.SetDeviceAttribute("DataRate", ns.StringValue("10Gbps"))
links.SetDeviceAttribute("Mtu", ns.UintegerValue(MTU))
links.SetChannelAttribute("Delay", ns.StringValue("500ns"))
addresses = ns.Ipv4AddressHelper(ns.Ipv4Address("10.0.0.0"), ns.Ipv4Mask("255.255.255.0"))
for place in range(ROUTERS + 1):
    devices = links.Install(nodes.Get(place), nodes.Get(place + 1))
    interfaces = addresses.Assign(devices)
    ns.TrafficControlHelper().Uninstall(devices)
    addresses.NewNetwork()
ns.Ipv4GlobalRoutingHelper.PopulateRoutingTables()
anywhere = ns.InetSocketAddress(ns.Ipv4Address.GetAny(), PORT).ConvertTo()
sinks = ns.PacketSinkHelper("ns3::TcpSocketFactory", anywhere).Install(nodes.Get(ROUTERS + 1))
source = ns.BulkSendHelper("ns3::TcpSocketFactory", ns.InetSocketAddress(interfaces.GetAddress(1), PORT).ConvertTo())
source.SetAttribute("MaxBytes", ns.UintegerValue(MIB << 20))
source.SetAttribute("SendSize", ns.UintegerValue(1 << 16))
source.Install(nodes.Get(0))
ns.cppyy.gbl.chain.countAll()
ns.Simulator.Stop(ns.Seconds(10))
began = time.monotonic()
ns.Simulator.Run()
wall_s = time.monotonic() - began
received = sinks.Get(0).GetObject[ns.PacketSink]().GetTotalRx()
forwarded = int(ns.cppyy.gbl.chain.forwarded)
print(f"{received >> 20} of {MIB} MiB received; {forwarded:,} packets forwarded in {wall_s:.2f} s, per second:")
print(f"{forwarded / wall_s:,.0f}")
