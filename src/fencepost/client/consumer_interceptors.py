"""Former location of `ConsumerInterceptor`."""

from fencepost.client.interceptors import ConsumerInterceptor

__all__ = ["ConsumerInterceptor"]
