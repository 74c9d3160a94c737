"""Where `ConsumerInterceptor` was imported from before."""

from fencepost.client.interceptors import ConsumerInterceptor

__all__ = ["ConsumerInterceptor"]
