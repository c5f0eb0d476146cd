package org.pgcache.spring;

import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;
import java.util.function.BooleanSupplier;
import org.springframework.cache.support.NullValue;
import org.springframework.core.serializer.support.DeserializingConverter;
import org.springframework.core.serializer.support.SerializingConverter;

/**
 * The stored form of a value: the bytes of its serializer. In a cache of text, a value that is not text is stored
 * in base64 after the prefix {@code base64:}.
 */
record Values(SerializingConverter serializer, DeserializingConverter deserializer) {
    private static final byte[] BASE64 = "base64:".getBytes(StandardCharsets.US_ASCII);

    byte[] stored(Object value, BooleanSupplier ofText) {
        if (value == NullValue.INSTANCE) {
            return null;
        }
        byte[] bytes = serializer.convert(value);
        boolean marked = isMarked(bytes);
        if (!marked && (isText(bytes) || !ofText.getAsBoolean())) {
            return bytes;
        }
        byte[] encoded = Base64.getEncoder().encode(bytes);
        byte[] stored = Arrays.copyOf(BASE64, BASE64.length + encoded.length);
        System.arraycopy(encoded, 0, stored, BASE64.length, encoded.length);
        return stored;
    }

    Object loaded(byte[] stored) {
        if (stored == null) {
            return NullValue.INSTANCE;
        }
        byte[] bytes = isMarked(stored) ? Base64.getDecoder().decode(Arrays.copyOfRange(stored, BASE64.length, stored.length)) : stored;
        return deserializer.convert(bytes);
    }

    private static boolean isMarked(byte[] bytes) {
        return bytes.length >= BASE64.length && Arrays.equals(bytes, 0, BASE64.length, BASE64, 0, BASE64.length);
    }

    private static boolean isText(byte[] bytes) {
        try {
            return StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(bytes)).chars().noneMatch(character -> character == 0);
        } catch (CharacterCodingException error) {
            return false;
        }
    }
}
