"""Bounded model checking (ICAPS22, section 8.2): is there an unsafe path of this length under the policy?"""
