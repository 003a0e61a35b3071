"""The Trio layer: connections, verification processes, the store's threads, the node.

Everything that waits is here. The engine below (peer) asks, this layer carries out and reports.
"""
