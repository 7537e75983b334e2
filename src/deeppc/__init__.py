"""deeppc"""
