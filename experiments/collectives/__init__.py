"""Every collective by every algorithm over sizes on an idle fabric: how fast, beside its closed form?"""
